# Kueue wants the certificate of its metrics, which are off here, in a fixed folder: that of the webhooks instead.
s|"/etc/kueue/metrics/certs"|cfg.Webhook.CertDir|
