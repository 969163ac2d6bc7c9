package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Ask sends one inline command on a connection of its own and returns the reply: the text of a status, a number or a bulk string.
func (n *Node) Ask(command string) (string, error) {
	nc, err := net.DialTimeout("tcp", n.Addr, time.Second)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := io.WriteString(nc, command+"\r\n"); err != nil {
		return "", err
	}
	r := bufio.NewReader(nc)
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	switch line[0] {
	case '-':
		return "", errors.New(line[1:])
	case '$':
		var size int
		if _, err := fmt.Sscan(line[1:], &size); err != nil || size < 0 {
			return "", fmt.Errorf("redistest: %s: no reply: %s", command, line)
		}
		b := make([]byte, size)
		_, err := io.ReadFull(r, b)
		return string(b), err
	}
	return line[1:], nil
}
