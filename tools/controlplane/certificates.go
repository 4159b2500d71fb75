// The keys and certificates of one control plane: a CA, one serving certificate for all programs, and client
// certificates by name and group. They are created for each folder and grant access to nothing else.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const certificateLife = 365 * 24 * time.Hour

type authority struct {
	dir         string
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

// newAuthority creates the CA: DIR/ca.crt and DIR/ca.key.
func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "controlplane"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	ca := &authority{dir: dir}
	var err error
	ca.certificate, ca.key, err = ca.issue("ca", template)
	return ca, err
}

// client creates DIR/FILE.crt and .key for a user: Kubernetes reads the name and the groups from the subject.
func (ca *authority) client(file, user string, groups ...string) error {
	_, _, err := ca.issue(file, &x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

// server creates DIR/FILE.crt and .key for loopback and for the names of the service `kubernetes`.
func (ca *authority) server(file, serviceIP string) error {
	_, _, err := ca.issue(file, &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.ParseIP(serviceIP)},
		DNSNames: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local",
		},
	})
	return err
}

// issue signs a template; the CA signs itself.
func (ca *authority) issue(file string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	// An hour of tolerance for clock skew.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(certificateLife)
	parent, signer := ca.certificate, ca.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, nil, err
	}
	if err := writePEM(filepath.Join(ca.dir, file+".crt"), "CERTIFICATE", der); err != nil {
		return nil, nil, err
	}
	return certificate, key, writeKey(filepath.Join(ca.dir, file+".key"), key)
}

// newSigningKey creates the key pair for service account tokens: FILE.key and FILE.pub.
func newSigningKey(dir, file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	if err := writePEM(filepath.Join(dir, file+".pub"), "PUBLIC KEY", public); err != nil {
		return err
	}
	return writeKey(filepath.Join(dir, file+".key"), key)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(path, "PRIVATE KEY", der)
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
