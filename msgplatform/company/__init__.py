"""What a company asks of a platform beside messages: who gets in and sees what, whom alerts reach,
what is held of one person, and a proof of what people did."""
