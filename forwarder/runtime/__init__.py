"""What every process needs and no stage owns: clock, logging, metrics, health, supervision."""
