"""What spiders did: their history, baseline, health, drift and timelines."""
