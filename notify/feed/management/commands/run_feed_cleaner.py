from msgplatform.core.daemons.command import DaemonCommand
from notify.feed.cleaner.cleaner import Cleaner


class Command(DaemonCommand):
    help = "Feed: deletes handled events, trims timelines, stops writing for readers who stay away."
    worker_class = Cleaner
