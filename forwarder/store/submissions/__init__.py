"""The worker's side of the store: submissions ingested, leased, recorded with their events, and repaired. Stages import `port`, others the rest."""
