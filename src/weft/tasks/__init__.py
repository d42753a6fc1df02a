"""What to do and when: tasks, their schedules, and the scheduler that turns due ticks into runs."""
