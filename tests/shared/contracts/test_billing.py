"""Bills of a newer version, read by this one."""

from shared.contracts.billing import JobCost

NEWER = b"""{
  "job_id": "hopper-v5-0", "settled_usd": 0.5, "reserved_usd": 0.0, "price_table": "later",
  "by_item": {"learner": 0.25, "gradients": 0.25}, "projected_wall_s": 1.0, "assumptions": [],
  "lines": [
    {"round": 0, "attempt": 0, "item": "gradients", "quantity": 1.0, "unit": "vCPU-second",
     "unit_price_usd": 0.25, "amount_usd": 0.25}
  ]
}"""


def test_items_and_units_that_are_not_known_yet_are_kept() -> None:
    cost = JobCost.read(NEWER)
    assert cost.by_item["gradients"] == 0.25
    assert [(line.item, line.unit) for line in cost.lines] == [("gradients", "vCPU-second")]
