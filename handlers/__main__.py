"""``python -m pcl_reasoner.handlers --config finetune.yaml --save_path packs/``."""

from pcl_reasoner.handlers.preprocess import main

main()
