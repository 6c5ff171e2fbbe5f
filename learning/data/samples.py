"""A gradient step's inputs: the columns of a minibatch, tensors or NumPy's arrays.

A batch has the same columns for all samples of an update, in an order that does not depend on when
trajectories arrived: one environment after the other, each in time order. It may also have `weight`
[n] float32, the factors of the normalised advantages.

Legend: n samples; O numbers per observation; D distribution parameters.
"""

SAMPLE_FIELDS = (
    "observation",  # [n, O] float32 as the policy saw it, or images [n, C, H, W] uint8
    "action",  # [n, A] float32 or [n] int64
    "advantage",  # [n] float32, in a minibatch with the batch's weights in them
    "value_target",  # [n] float32
    "value",  # [n] float32, V(s) before the update
    "log_prob",  # [n] float32, of `action`: what the ratio is taken to
    "behaviour_log_prob",  # [n] float32, of `action`, as the actors computed it
    "outputs",  # [n, D] float32, distribution parameters the divergence is from
)
