"""AdamW by MindSpore's Adam kernel, which changes weights and moments where they lie.

    optimizer: {type: AdamWInPlace, auto_register: adamw_in_place.AdamWInPlace, …}

On a CPU MindFormers' AdamW is some twenty small operators a weight, whose results together are
several times the model: 24 layers of Qwen2.5-0.5B do not fit into 23 GiB with it. This one makes
the same step:

    x ← x (1 − rate · decay);   x ← x − rate · (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)

The kernel divides by √v + ε', so ε' = ε √(1 − β₂ᵗ) makes the two alike.
"""

from mindformers.core.optim.adamw import AdamW
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindspore import ops

__all__ = ["AdamWInPlace"]


@MindFormerRegister.register(MindFormerModuleType.OPTIMIZER)
class AdamWInPlace(AdamW):
    """AdamW with decay in groups and one learning rate, as the Trainer builds it."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.adam = ops.Adam()

    def construct(self, gradients):
        """Update all parameters."""
        decays = self.get_weight_decay()
        rate = self.get_lr()
        self.assignadd(self.global_step, self.global_step_increase_tensor)
        first = ops.pow(self.beta1, self.global_step).reshape(())
        second = ops.pow(self.beta2, self.global_step).reshape(())
        eps = (self.eps * ops.sqrt(1.0 - second)).reshape(())
        updated = ()
        for index in range(len(self.parameters)):
            parameter = self._parameters[index]
            if self.decay_flags[index]:
                kept = parameter * (1.0 - rate * decays[index])
                gradient = ops.depend(gradients[index], ops.assign(parameter, kept))
            else:
                gradient = gradients[index]
            result = self.adam(
                parameter,
                self.exp_avg[index],
                self.exp_avg_sq[index],
                first,
                second,
                rate,
                self.beta1.reshape(()),
                self.beta2.reshape(()),
                eps,
                gradient,
            )
            updated += (result[0].shape[0] > 0,)
            gradients = ops.depend(gradients, result[0])
        return updated
