"""What a run would do: its servers, and the commands of every host in their order."""
