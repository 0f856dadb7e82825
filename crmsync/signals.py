"""The wake-up signals of CRM sync: orders in the queue of a CRM wake the handlers."""

from msgplatform.core.daemons.wake_signal import WakeSignal

HANDLER = WakeSignal("sync_handler")
