"""How much work stands, and since when: read for the metrics and for operators. Changes nothing."""
