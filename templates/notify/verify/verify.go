package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

const toleranceSeconds = 300

// Verify says whether this message is genuine: the three webhook headers, and the body's bytes as
// they came, before anything parses them.
func Verify(secret, id, timestamp, signature string, body []byte) bool {
	sent, err := strconv.ParseUint(timestamp, 10, 40)
	if err != nil {
		return false
	}
	age := time.Now().Unix() - int64(sent)
	if age > toleranceSeconds || age < -toleranceSeconds {
		return false
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	expected := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	// While a secret is being rotated there are two signatures: one that fits is enough.
	for _, given := range strings.Fields(signature) {
		if hmac.Equal(expected, []byte(given)) {
			return true
		}
	}
	return false
}
