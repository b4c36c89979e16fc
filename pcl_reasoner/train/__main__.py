"""``python -m pcl_reasoner.train finetune.yaml``; msrun takes the same after its own arguments."""

from pcl_reasoner.train.entry import main

main()
