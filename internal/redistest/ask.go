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

// Ask sends one inline command on a connection of its own and returns the reply: the text of a status, a number or
// a bulk string; the elements of an array with spaces between.
func (n *Node) Ask(command string) (string, error) { return n.AskAs("", command) }

// AskAs is Ask for the default user with a password, unless that is "".
func (n *Node) AskAs(password, command string) (string, error) {
	nc, err := net.DialTimeout("tcp", n.Addr, time.Second)
	if err != nil {
		return "", err
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	if password != "" {
		command = "AUTH " + password + "\r\n" + command
	}
	if _, err := io.WriteString(nc, command+"\r\n"); err != nil {
		return "", err
	}
	r := bufio.NewReader(nc)
	if password != "" {
		if _, err := reply(r); err != nil {
			return "", err
		}
	}
	return reply(r)
}

func reply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	size := 0
	fmt.Sscan(line[1:], &size)
	switch line[0] {
	case '-':
		return "", errors.New(line[1:])
	case '$':
		if size < 0 {
			return "", errors.New("no value")
		}
		b := make([]byte, size+2)
		_, err := io.ReadFull(r, b)
		return string(b[:size]), err
	case '*':
		var all []string
		for range size {
			one, err := reply(r)
			if err != nil {
				return "", err
			}
			all = append(all, one)
		}
		return strings.Join(all, " "), nil
	}
	return line[1:], nil
}
