// The scaling policies as the page offers them, and which of them is in force.

/** Return the policy in force in a round: that of the newest switch up to it, else the first one. */
export const scalingOf = (job, round) =>
  job.switches.filter((s) => s.round <= round).at(-1)?.scaling || job.spec.scaling;

/** Policies that need no parameter of the user's, and `fixed`, which needs one. */
export const POLICIES = [
  ["fixed", "fixed: pin a number"],
  ["nitro", "nitro: boosting score"],
  ["auto", "auto: divide the samples"],
  ["random", "random: a random score"],
  ["kungfu", "kungfu: gradient noise"],
  ["marginal", "marginal: worth of a fragment"],
  ["hydrozoa", "hydrozoa: double now and then"],
  ["reward_window", "reward_window: changes of return"],
];
