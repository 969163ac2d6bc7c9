package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// The environment variables that CredentialsFromEnvironment reads.
const (
	envUser         = "TENSORCACHE_CLUSTER_USER"
	envPassword     = "TENSORCACHE_CLUSTER_PASSWORD"
	envPasswordFile = "TENSORCACHE_CLUSTER_PASSWORD_FILE"
	envCA           = "TENSORCACHE_CLUSTER_CA"
	envCert         = "TENSORCACHE_CLUSTER_CERT"
	envKey          = "TENSORCACHE_CLUSTER_KEY"
)

// CredentialsFromEnvironment reads TENSORCACHE_CLUSTER_USER; TENSORCACHE_CLUSTER_PASSWORD, or the first line of the file that
// TENSORCACHE_CLUSTER_PASSWORD_FILE names; the authorities that may have signed the cluster's certificates, a PEM file that
// TENSORCACHE_CLUSTER_CA names; and the client's certificate and key, PEM files that TENSORCACHE_CLUSTER_CERT and TENSORCACHE_CLUSTER_KEY
// name. What is not set stays empty.
func CredentialsFromEnvironment() (Credentials, error) {
	c := Credentials{User: os.Getenv(envUser), Password: os.Getenv(envPassword)}
	var errs []error
	if path := os.Getenv(envPasswordFile); path != "" {
		errs = append(errs, c.passwordFrom(path))
	}
	ca, cert, key := os.Getenv(envCA), os.Getenv(envCert), os.Getenv(envKey)
	if ca != "" || cert != "" || key != "" {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if ca != "" {
		errs = append(errs, c.authorities(ca))
	}
	if (cert == "") != (key == "") {
		errs = append(errs, fmt.Errorf("cluster: %s (%s) and %s (%s) must be set together", envCert, cert, envKey, key))
	} else if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			errs = append(errs, fmt.Errorf("cluster: %s: %w", envCert, err))
		}
		c.TLS.Certificates = []tls.Certificate{pair}
	}
	return c, errors.Join(errs...)
}

func (c *Credentials) passwordFrom(path string) error {
	if c.Password != "" {
		return fmt.Errorf("cluster: %s (%s) and %s contradict each other", envPasswordFile, path, envPassword)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cluster: %s: %w", envPasswordFile, err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	if c.Password = strings.TrimSuffix(line, "\r"); c.Password == "" {
		return fmt.Errorf("cluster: %s (%s) must have a first line that is not empty", envPasswordFile, path)
	}
	return nil
}

func (c *Credentials) authorities(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("cluster: %s: %w", envCA, err)
	}
	c.TLS.RootCAs = x509.NewCertPool()
	if !c.TLS.RootCAs.AppendCertsFromPEM(b) {
		return fmt.Errorf("cluster: %s (%s) must be a PEM file with a certificate", envCA, path)
	}
	return nil
}
