"""Kind `booking-sync`: BookingSync (Smily) API v3. `adapter` is the way in; the rest are its words and its steps."""
