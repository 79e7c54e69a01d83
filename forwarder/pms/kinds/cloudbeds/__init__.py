"""Kind `cloudbeds`: Cloudbeds PMS API v1.3. `adapter` is the way in; the rest are its words."""
