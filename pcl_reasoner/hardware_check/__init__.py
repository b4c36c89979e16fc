"""Checks one Ascend node part by part in ten minutes; on a CPU, only the parts that apply there."""
