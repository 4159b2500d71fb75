# JobSet is installed already, as its comment says for this case; the line would fetch it.
/third-party\/jobset/d
