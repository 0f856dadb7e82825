"""Wake-up signals: accepted messages wake a sender, Reports and MOs the forwarder."""

from msgplatform.core.daemons.wake_signal import WakeSignal

SENDER = WakeSignal("sms_sender")
FORWARDER = WakeSignal("report_forwarder")
