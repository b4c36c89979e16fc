"""Which versions of the engines fit together, and what every host of a launch file has."""
