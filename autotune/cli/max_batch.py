"""``autotune max-batch``: just the number, for scripts: ``BATCH=$(autotune max-batch model.py)``."""

from autotune.cli.options import Asked, searching


def run(asked: Asked) -> None:
    """Print just the largest safe batch size.

    Only the number when piped or with -q, so that scripts can use it; a sentence on a terminal. With --buckets a line for
    each length bucket: its length and its batch, or a table on a terminal.
    """
    if asked.buckets is not None:
        _by_bucket(asked)
        return
    from autotune.cli.asking import ask, keep
    from autotune.cli.console import Screen
    from autotune.report.advice import advice
    from autotune.report.table import headline

    result = ask(asked, recommend=False)
    try:
        keep(asked, result)
    finally:  # the answer took long to find: it is shown also if the file cannot be written
        if not asked.json:
            stdout, stderr = Screen(stderr=False), Screen(stderr=True)
            terse = asked.quiet or not stdout.is_terminal
            stdout.say(str(result.answer.max_batch) if terse else headline(result))
            if not asked.quiet:
                for text in advice(result):
                    stderr.say(f"- {text}")


def _by_bucket(asked: Asked) -> None:
    from autotune.cli.asking import ask_buckets, keep_buckets
    from autotune.cli.console import Screen
    from autotune.report.buckets import bucket_advice, bucket_numbers, bucket_table

    found = ask_buckets(asked)
    try:
        keep_buckets(asked, found)
    finally:  # as above, and also if a bucket has no answer
        if not asked.json:
            stdout, stderr = Screen(stderr=False), Screen(stderr=True)
            terse = asked.quiet or not stdout.is_terminal
            stdout.say("\n".join(bucket_numbers(found) if terse else bucket_table(found)))
            if not asked.quiet:
                for text in bucket_advice(found):
                    stderr.say(f"- {text}")


max_batch = searching(run, default_output=None, tune=False)
