"""What MindFormers' Trainer is made of here: model, loader, step, callbacks, CPU operators."""
