"""Parts given to MindFormers' Trainer: model, loader, training step, callbacks, CPU operators."""
