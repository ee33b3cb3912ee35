"""Conformance checks that the tests of all simulators share."""

from simulators.conformance import check


def find_failed_checks(make, seeds, acts):
    """Run the conformance kit and return the findings that failed."""
    return [finding for finding in check(make, seeds=seeds, acts=acts) if not finding.ok]


def passes_over_many_seeds(make, options, capsys, seeds=1000):
    """Run the conformance kit over many seeds, print the findings and times, and return whether all passed."""
    findings = check(make, seeds=seeds, acts=20_000)
    with capsys.disabled():
        print(f"\n{options}")
        for finding in findings:
            print(f"    {finding.name:14}{finding.seconds:6.0f} s  {finding.detail[:200]}")
    return all(finding.ok for finding in findings)
