"""The log between the stages. Stages use `port` and the codecs; `assembly` chooses `kafka` or `embedded`."""
