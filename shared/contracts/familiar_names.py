"""Names of fields in Stable-Baselines3, CleanRL and RLlib, and their equivalents.

Errors about unknown fields and options suggest them, and the reference lists them.
"""

from typing import NamedTuple

SB3, CLEANRL, RLLIB = "SB3", "CleanRL", "RLlib"


class Familiar(NamedTuple):
    """One name from another library."""

    name: str
    libraries: tuple[str, ...]
    here: str
    """Our field's path, or a sentence with an alternative."""

    @property
    def is_field(self) -> bool:
        """Whether it is the same field under another name."""
        return " " not in self.here


_RATE = "hyperparameters.learning_rate"
_ENTROPY = "hyperparameters.entropy_coefficient"
_VALUE = "hyperparameters.value_coefficient"
_EPOCHS = "hyperparameters.num_epochs"
_MINIBATCH = "hyperparameters.minibatch_size"
_CAPACITY = "hyperparameters.replay_capacity"
_CLIP, _VALUE_CLIP = "hyperparameters.clip", "hyperparameters.value_clip"
_NORM = "hyperparameters.gradient_norm_max"
_HIDDEN = "hyperparameters.hidden_sizes"
_ACTORS = "actors step environments; --scaling fixed:N uses N actors in every round"
_UNITS = "hyperparameters.recurrent_units"
_DIRECTIONS, _TOP = "hyperparameters.directions", "hyperparameters.top_directions"
_PERTURBATION, _OFFSET = "hyperparameters.exploration_std", "hyperparameters.reward_offset"
_PER_ACTOR = "envs_per_actor"
_STEPS = "--total-steps sets the environment steps, --rounds the updates"
_DEVICE = (
    "a learner on this machine uses its GPU if it has one; --learner gpu or --learner cpu chooses "
    "on AWS"
)
_TRACK = "--track wandb, --track mlflow or --track trackio logs the rounds of a run"
_NETWORK = f"the network depends on the observations; {_HIDDEN} sets its layers"
_KL = (
    "updates do not stop early; hyperparameters.kl_coefficient and hyperparameters.kl_target add a "
    "KL penalty"
)
_EVALUATIONS = "evaluation.every_rounds"
_SPREAD = "hyperparameters.log_std says whether the standard deviation depends on the state"

FAMILIAR: tuple[Familiar, ...] = (
    Familiar("gamma", (SB3, CLEANRL, RLLIB), "hyperparameters.discount"),
    Familiar("lr", (RLLIB,), _RATE),
    Familiar("learning_rate", (SB3, CLEANRL), _RATE),
    Familiar("anneal_lr", (CLEANRL,), "hyperparameters.learning_rate_decay"),
    Familiar("lr_schedule", (RLLIB,), "hyperparameters.learning_rate_decay"),
    Familiar("n_steps", (SB3,), "steps_per_actor"),
    Familiar("num_steps", (CLEANRL,), "steps_per_actor"),
    Familiar("rollout_fragment_length", (RLLIB,), "steps_per_actor"),
    Familiar("train_batch_size", (RLLIB,), "samples_per_round"),
    Familiar("train_batch_size_per_learner", (RLLIB,), "samples_per_round"),
    Familiar("total_timesteps", (SB3, CLEANRL), _STEPS),
    Familiar("timesteps", (), _STEPS),
    Familiar("num_timesteps", (), _STEPS),
    Familiar("n_envs", (SB3,), _ACTORS),
    Familiar("num_envs", (CLEANRL,), _ACTORS),
    Familiar("num_workers", (RLLIB,), _ACTORS),
    Familiar("num_env_runners", (RLLIB,), _ACTORS),
    Familiar("num_envs_per_worker", (RLLIB,), _PER_ACTOR),
    Familiar("num_envs_per_env_runner", (RLLIB,), _PER_ACTOR),
    Familiar("batch_size", (SB3,), _MINIBATCH),
    Familiar("sgd_minibatch_size", (RLLIB,), _MINIBATCH),
    Familiar(
        "num_minibatches",
        (CLEANRL,),
        f"{_MINIBATCH} is the size of one minibatch: a round's samples divided by the number of "
        "minibatches",
    ),
    Familiar("buffer_size", (SB3, CLEANRL), _CAPACITY),
    Familiar(
        "replay",
        (),
        f"{_CAPACITY} is the number of steps in a replay buffer, and {_MINIBATCH} the number drawn "
        "from it; episodes.replay is whether episodes continue by repeating their actions",
    ),
    Familiar("tau", (SB3, CLEANRL, RLLIB), "hyperparameters.target_rate"),
    Familiar("gradient_steps", (SB3,), "hyperparameters.updates_per_step"),
    Familiar("n_delta", (SB3,), _DIRECTIONS),
    Familiar("num_rollouts", (RLLIB,), _DIRECTIONS),
    Familiar("n_top", (SB3,), _TOP),
    Familiar("rollouts_used", (RLLIB,), _TOP),
    Familiar("delta_std", (SB3,), _PERTURBATION),
    Familiar("noise_stdev", (RLLIB,), _PERTURBATION),
    Familiar("alive_bonus_offset", (SB3,), f"{_OFFSET} is the same number without its sign"),
    Familiar("sgd_stepsize", (RLLIB,), "hyperparameters.step_size"),
    Familiar("l2_coeff", (RLLIB,), "hyperparameters.weight_decay"),
    Familiar(
        "episodes_per_batch", (RLLIB,), f"{_DIRECTIONS} is half of it: each is tried both ways"
    ),
    Familiar("n_epochs", (SB3,), _EPOCHS),
    Familiar("update_epochs", (CLEANRL,), _EPOCHS),
    Familiar("num_sgd_iter", (RLLIB,), _EPOCHS),
    Familiar("lambda_", (RLLIB,), "hyperparameters.gae_lambda"),
    Familiar("clip_range", (SB3,), _CLIP),
    Familiar("clip_coef", (CLEANRL,), _CLIP),
    Familiar("clip_param", (RLLIB,), _CLIP),
    Familiar("clip_range_vf", (SB3,), _VALUE_CLIP),
    Familiar("clip_vloss", (CLEANRL,), "hyperparameters.value_loss"),
    Familiar("vf_clip_param", (RLLIB,), _VALUE_CLIP),
    Familiar("normalize_advantage", (SB3,), "hyperparameters.advantage_normalisation"),
    Familiar("norm_adv", (CLEANRL,), "hyperparameters.advantage_normalisation"),
    Familiar("ent_coef", (SB3, CLEANRL), _ENTROPY),
    Familiar("entropy_coeff", (RLLIB,), _ENTROPY),
    Familiar("vf_coef", (SB3, CLEANRL), _VALUE),
    Familiar("vf_loss_coeff", (RLLIB,), _VALUE),
    Familiar("max_grad_norm", (SB3, CLEANRL), _NORM),
    Familiar("grad_clip", (RLLIB,), _NORM),
    Familiar("kl_coeff", (RLLIB,), "hyperparameters.kl_coefficient"),
    Familiar("target_kl", (SB3, CLEANRL), _KL),
    Familiar("net_arch", (SB3,), _HIDDEN),
    Familiar("use_lstm", (RLLIB,), "hyperparameters.recurrent"),
    Familiar("lstm_cell_size", (RLLIB,), _UNITS),
    Familiar("lstm_hidden_size", (SB3,), _UNITS),
    Familiar("max_seq_len", (RLLIB,), "hyperparameters.sequence_length"),
    Familiar("fcnet_hiddens", (RLLIB,), _HIDDEN),
    Familiar("activation_fn", (SB3,), "hyperparameters.activation"),
    Familiar("fcnet_activation", (RLLIB,), "hyperparameters.activation"),
    Familiar("entropy_coeff_schedule", (RLLIB,), "hyperparameters.entropy_decay"),
    Familiar("policy_kwargs", (SB3,), _NETWORK),
    Familiar("policy", (SB3,), _NETWORK),
    Familiar("ortho_init", (SB3,), "hyperparameters.initialisation"),
    Familiar("use_sde", (SB3,), f"there is no state-dependent exploration; {_SPREAD}"),
    Familiar("norm_obs", (SB3,), "hyperparameters.observation_normalisation"),
    Familiar("norm_reward", (SB3,), "hyperparameters.reward_scaling"),
    Familiar("device", (SB3,), _DEVICE),
    Familiar("cuda", (CLEANRL,), _DEVICE),
    Familiar("num_gpus", (RLLIB,), _DEVICE),
    Familiar(
        "torch_deterministic",
        (CLEANRL,),
        "equal seeds train equal policies in any case",
    ),
    Familiar("verbose", (SB3,), "nitro.train(progress=False) shows nothing"),
    Familiar("callback", (SB3, RLLIB), "nitro.train(on_round=FUNCTION) calls it after every round"),
    Familiar("track", (CLEANRL,), _TRACK),
    Familiar(
        "wandb_project_name", (CLEANRL,), "`nitro track --project` sets it for an existing run"
    ),
    Familiar(
        "tensorboard_log",
        (SB3,),
        "every run writes TensorBoard files; tensorboard --logdir runs shows them",
    ),
    Familiar("tb_log_name", (SB3,), "name"),
    Familiar("exp_name", (CLEANRL,), "name"),
    Familiar("env", (SB3, RLLIB), "the field is env_id; nitro train ENV needs no option"),
    Familiar("capture_video", (CLEANRL,), "`nitro evaluate --video` films a policy"),
    Familiar("eval_freq", (SB3,), _EVALUATIONS),
    Familiar("evaluation_interval", (RLLIB,), _EVALUATIONS),
    Familiar("n_eval_episodes", (SB3,), "evaluation.episodes"),
    Familiar("evaluation_duration", (RLLIB,), "evaluation.episodes"),
    Familiar(
        "save_freq",
        (SB3,),
        "every round writes a checkpoint; checkpoint.keep sets how many are kept",
    ),
)
"""Names with the same meaning in several libraries appear once."""

_BY_NAME = {each.name: each for each in FAMILIAR}


def familiar(name: str) -> Familiar | None:
    """Return the equivalent of another library's name, ignoring case and hyphens.

    >>> familiar("ent-coef").here
    'hyperparameters.entropy_coefficient'
    """
    return _BY_NAME.get(name.lower().replace("-", "_"))
