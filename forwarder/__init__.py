"""The reservation forwarder: from booking engines into property management systems, never lost, never booked twice."""
