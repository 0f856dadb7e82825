"""Posts, waits until the last follower sees the post, then posts again.

    python -m bench.feed.poster --progress FILE --biz 1 --author UID --last UID

On SIGTERM it prints how long it took from the answer to the poster until the follower's timeline
showed the post.
"""

import json
import random
import time

from bench.harness.programs import quantiles, worker

# Between two looks: a reader who asks all the time would take capacity that the dispatcher needs.
_LOOK_SECONDS = 0.002
_MAX_SECONDS = 120.0
# Between two posts, so that they meet the dispatcher's rests at any moment.
_REST_SECONDS = 0.2


def main() -> None:
    parser = worker.options("Post, and wait until a follower sees it.")
    parser.add_argument("--biz", type=int, required=True)
    parser.add_argument("--author", required=True)
    parser.add_argument("--last", required=True)
    options = parser.parse_args()
    stop = worker.Stop()
    worker.set_up_django()
    from notify.feed import timeline
    from notify.feed.intake import posts

    times: list[float] = []
    while not stop:
        text = f"Post number {len(times)} from the stage"
        post = posts.add(posts.Post(options.biz, options.author, text, "vip"))
        begun = time.perf_counter()  # the post is committed, and its author has the answer
        while True:
            page = timeline.read(options.biz, options.last, limit=1)
            taken = time.perf_counter() - begun
            if page.posts and page.posts[0].id == post.id:
                break
            if taken > _MAX_SECONDS:
                raise SystemExit(f"post {post.id} is not visible after {taken:.0f} seconds")
            time.sleep(_LOOK_SECONDS)
        times.append(taken)
        options.progress.add(1)
        time.sleep(random.uniform(0, _REST_SECONDS))
    print(json.dumps({**quantiles.report(times), "calls": len(times)}))


if __name__ == "__main__":
    main()
