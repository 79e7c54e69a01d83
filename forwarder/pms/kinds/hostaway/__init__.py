"""Kind `hostaway`: Hostaway API v1. `adapter` is the way in; the rest are its words."""
