"""``python -m pcl_reasoner.worker finetune.yaml``, as msrun starts it."""

from pcl_reasoner.worker.entry import main

main()
