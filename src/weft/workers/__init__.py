"""Workers: the loop that executes runs, its heartbeat, and the reaper of workers that fall silent."""
