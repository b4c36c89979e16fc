"""Checks one Ascend node part by part in ten minutes; on a CPU, some parts are left out."""
