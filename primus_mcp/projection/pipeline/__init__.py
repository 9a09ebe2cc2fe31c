"""Pipeline schedules as orders of tasks, and the simulator that times them."""
