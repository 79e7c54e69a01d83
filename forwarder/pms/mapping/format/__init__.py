"""What a mapping may say: its document, checked as it is loaded. Knows the names of fields, and asks no PMS. Pure."""
