"""What the tests of every simulator ask of the conformance kit."""

from simulators.conformance import check


def broken(make, seeds, acts):
    """The promises that were not kept over a few seeds."""
    return [finding for finding in check(make, seeds=seeds, acts=acts) if not finding.ok]


def kept_over_many(make, options, capsys, seeds=1000):
    """Whether all promises were kept over many seeds; says what was found, and how long it took."""
    findings = check(make, seeds=seeds, acts=20_000)
    with capsys.disabled():
        print(f"\n{options}")
        for finding in findings:
            print(f"    {finding.name:14}{finding.seconds:6.0f} s  {finding.detail[:200]}")
    return all(finding.ok for finding in findings)
