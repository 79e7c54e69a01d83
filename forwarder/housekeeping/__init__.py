"""Work outside the delivery of reservations: metrics of the backlog, removal of guests' data. Reads the log, changes the store."""
