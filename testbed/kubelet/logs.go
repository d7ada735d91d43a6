package kubelet

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/big"
	"net/http"
	"os"
	"strconv"
	"time"
)

// followEvery is how often a followed log is checked for more.
const followEvery = 50 * time.Millisecond

// serveAPI serves the kubelet's API for `kubectl logs` and `kubectl exec`.
func (n *node) serveAPI(certificate tls.Certificate) *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", n.serveLogs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", n.serveExec)
	return &http.Server{
		Handler:           mux,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}},
		ErrorLog:          log.New(io.Discard, "", 0),
		ReadHeaderTimeout: callTimeout,
	}
}

func (n *node) serveLogs(w http.ResponseWriter, r *http.Request) {
	if !n.connected() {
		panic(http.ErrAbortHandler) // disconnected: the API server sees a broken connection
	}
	query := r.URL.Query()
	p, err := n.pod(r.PathValue("namespace"), r.PathValue("pod"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	for _, option := range []string{"timestamps", "sinceSeconds", "sinceTime"} {
		if value := query.Get(option); value != "" && value != "false" {
			http.Error(w, option+" is not supported: the process kubelet does not record the times of log lines", http.StatusBadRequest)
			return
		}
	}
	path, running, err := p.logFile(r.PathValue("container"), query.Get("previous") == "true")
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return // started, but has not written
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer file.Close()
	if tail, err := strconv.ParseInt(query.Get("tailLines"), 10, 64); err == nil {
		if err := seekTail(file, tail); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	if limit, err := strconv.ParseInt(query.Get("limitBytes"), 10, 64); err == nil {
		io.Copy(w, io.LimitReader(file, limit))
		return
	}
	if query.Get("follow") != "true" {
		io.Copy(w, file)
		return
	}
	n.followLog(w, r, file, running)
}

// followLog writes what is added to the log until the container has ended, the caller disconnects, or the node does.
func (n *node) followLog(w http.ResponseWriter, r *http.Request, file *os.File, running func() bool) {
	flusher := http.NewResponseController(w)
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		more := running() // before the last copy, so that nothing written until then is missed
		if _, err := io.Copy(w, file); err != nil {
			return
		}
		if err := flusher.Flush(); err != nil {
			return
		}
		if !more || !n.connected() {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// seekTail moves to the beginning of the last lines.
func seekTail(file *os.File, lines int64) error {
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if lines == 0 {
		return nil
	}
	const block = 32 << 10
	found := int64(0)
	last := true // no line begins after the newline that ends the file
	for at := end; at > 0; {
		size := min(block, at)
		at -= size
		buffer := make([]byte, size)
		if _, err := file.ReadAt(buffer, at); err != nil {
			return err
		}
		for {
			i := bytes.LastIndexByte(buffer, '\n')
			if i < 0 {
				break
			}
			if !(last && at+int64(i) == end-1) {
				found++
			}
			last = false
			if found == lines {
				_, err := file.Seek(at+int64(i)+1, io.SeekStart)
				return err
			}
			buffer = buffer[:i]
		}
	}
	_, err = file.Seek(0, io.SeekStart)
	return err
}

// selfSigned makes the certificate with which nodes serve logs. By default the API server does not verify it, as with a
// kubelet's own.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a key: %w", err)
	}
	const day = 24 * time.Hour
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "process kubelet"},
		NotBefore:    time.Now().Add(-day),
		NotAfter:     time.Now().Add(365 * day),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
