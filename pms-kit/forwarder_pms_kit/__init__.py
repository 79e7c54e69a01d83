"""For authors of adapters and mappings: conformance checks (`conformance`), simulators of vendors' APIs (`simulators`), and the
command `forwarder adapters check` (`command`). A distribution of its own: it may use every part of the forwarder. The forwarder
runs without it, and `of_kit` in `forwarder/process/loading.py` alone looks for it.
"""

__version__ = "0.1.0"
