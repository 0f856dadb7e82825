"""Texts that do not fit: into a column of a list, or onto a telephone."""

LONG_NAME = "人民医院预约中心（一个很长的名字，列表里放不下，手机上更放不下）"
LONG_TEXT = "请带好您的身份证和医保卡，提前十五分钟到达。" * 45 + "谢谢合作，祝早日康复！"
LONG_SLUG = "an-account-with-a-name-of-sixty-four-characters-as-long-as-it-go"
