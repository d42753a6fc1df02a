"""The alert rules that come with weft: Prometheus reads them, and they fire when they should."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from weft.metrics import METRICS

RULES = Path(__file__).parents[1] / "deploy" / "prometheus" / "weft.rules.yml"
OF_CRAWL = '{project="shop", name="site", crawl="7"}'
NAMED = {"project": "shop", "name": "site", "crawl": "7"}


def promtool(*words: str, cwd: Path | None = None) -> str:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=60, check=False, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def test_prometheus_takes_the_rules() -> None:
    assert f"{len(rules())} rules found" in promtool("check", "rules", str(RULES))


def test_every_number_of_a_rule_is_a_metric_of_weft() -> None:
    suffix = {"counter": "_total", "histogram": "_count"}
    known = {each.name + suffix.get(each.kind, "") for each in METRICS}
    named = {name for rule in rules() for name in re.findall(r"\bweft_\w+", rule["expr"])}
    assert named <= known


@pytest.mark.parametrize(
    ("alert", "series", "values", "fires"),
    [
        ("WeftCrawlErrors", f"weft_crawl_success_ratio{OF_CRAWL}", "0.89+0x60", True),
        ("WeftCrawlErrors", f"weft_crawl_success_ratio{OF_CRAWL}", "0.91+0x60", False),
        ("WeftCrawlBacklog", f"weft_crawl_backlog{OF_CRAWL}", "1001+0x60", True),
        ("WeftCrawlBacklog", f"weft_crawl_backlog{OF_CRAWL}", "1000+0x60", False),
    ],
)
def test_an_alert_fires_above_its_bound_and_not_before(
    tmp_path: Path, alert: str, series: str, values: str, fires: bool
) -> None:
    [rule] = [each for each in rules() if each["alert"] == alert]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(_bare(rule)))
    expected = [{"exp_labels": NAMED | rule["labels"]}] if fires else []
    asked = {"eval_time": "20m", "alertname": alert, "exp_alerts": expected}
    case = {"interval": "1m", "input_series": [{"series": series, "values": values}], "alert_rule_test": [asked]}
    (tmp_path / "cases.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": [case]}))
    promtool("test", "rules", "cases.yml", cwd=tmp_path)


def _bare(rule: dict[str, Any]) -> dict[str, Any]:
    """One rule without its texts, which a case would have to repeat."""
    return {"groups": [{"name": "one", "rules": [{key: value for key, value in rule.items() if key != "annotations"}]}]}
