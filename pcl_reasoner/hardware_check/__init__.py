"""What one Ascend node does, part by part, in ten minutes; on a CPU what applies there."""
