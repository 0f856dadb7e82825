"""Wake-up signals: of a maker for accepted messages, of a sender for orders on a queue, and for
changed consumers and subscriptions; of the web servers in which listeners wait for a delivery."""

from msgplatform.core.daemons.wake_signal import WakeSignal

MAKER = WakeSignal("maker")
SENDER = WakeSignal("sender")
SUBSCRIPTIONS = WakeSignal("subscriptions")
LISTENERS = WakeSignal("listeners")
