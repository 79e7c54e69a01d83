"""Kind `beds24`: Beds24 API v2. `adapter` is the way in; the rest are its words."""
