"""A CPU process acts as rank k of N Ascend devices, to compile or to execute the rank's graph."""
