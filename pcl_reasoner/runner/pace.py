"""Rate and remaining time of a stage, as text: ``1,200/5,000 problems, 13.1 problems/s``."""


def duration(seconds: float) -> str:
    """Format a duration: ``0.4 s``, ``12 s``, ``4 min 3 s``, ``1 h 12 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{rest} s"
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


class Pace:
    """Rate and remaining time of one stage, measured from the first update.

    Work that a resumed stage had done before the first update does not count.
    """

    def __init__(self, done: float, now: float, counted: tuple[float | None, str]) -> None:
        self._first, self._began, self.counted = done, now, counted

    def describe(self, done: float, total: float | None, unit: str, now: float) -> str:
        """Format the progress: ``1,200/5,000 problems, 13.1 problems/s, 4 min 50 s left``."""
        parts = [f"{done:,.0f}{f'/{total:,.0f}' if total else ''} {unit}"]
        gained, spent = done - self._first, now - self._began
        if gained > 0 and spent > 0:
            rate = gained / spent
            slow = f"{duration(1 / rate)} each" if rate < 0.1 else f"{rate:,.1f} {unit}/s"
            parts.append(slow)
            if total:
                parts.append(f"{duration(max(0.0, total - done) / rate)} left")
        return ", ".join(parts)
