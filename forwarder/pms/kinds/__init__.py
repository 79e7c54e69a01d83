"""The kinds of PMS that come with the forwarder, a module or a room each. Each sees `pms.sdk` and itself."""
