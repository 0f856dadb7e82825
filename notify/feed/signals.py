"""Wake-up signals: posts wake a dispatcher."""

from msgplatform.core.daemons.wake_signal import WakeSignal

DISPATCHER = WakeSignal("feed_dispatcher")
