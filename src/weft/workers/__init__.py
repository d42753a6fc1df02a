"""Workers: the loop that sees runs through, its heartbeat, and the watch over those that fall silent."""
